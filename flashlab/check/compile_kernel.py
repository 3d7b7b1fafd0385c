"""Compile one kernel and print what the compiler makes of it: a program of its own, which imports Triton and nothing of flashlab.

stdin: {"source", "kernel", "signature", "constants"} as JSON. stdout: {"ttir": text} or {"error": "Class: message"}.
"""

import json
import linecache
import re
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ARCH = 90                      # any would do: what is looked at is settled before the code depends on the GPU


def main(source, kernel, signature, constants):
    linecache.cache["<kernel>"] = (len(source), None, source.splitlines(keepends=True), "<kernel>")    # Triton reads it there
    namespace = {"__name__": "kernel", "triton": triton, "tl": triton.language}
    exec(compile(source, "<kernel>", "exec"), namespace)
    built = ASTSource(namespace[kernel], signature, {(int(n),): value for n, value in constants.items()}, {})
    text = triton.compile(built, target=GPUTarget("cuda", ARCH, 32)).asm["ttir"]
    return re.sub(r" loc\((?:[^()]|\([^()]*\))*\)", "", text)


if __name__ == "__main__":
    try:
        answer = {"ttir": main(**json.load(sys.stdin))}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer))
