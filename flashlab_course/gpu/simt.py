"""How a GPU runs a kernel, small enough to read: a grid of blocks, blocks of warps, warps of 32 lanes in lock step.

    trace = launch(vector_add, grid=2, block=64)(A, B, C, N)       # CUDA C++: vector_add<<<2, 64>>>(A, B, C, N)
    print(trace)                                                    # each step of each warp, lane by lane

A kernel is a Python function written for one thread, line by line as in CUDA C++ (gpu/cuda/*.cu): it finds its element
from threadIdx, blockIdx and blockDim and returns nothing. Tensors arrive as pointers: A[i] is the i-th number from A's
first. Understood: assignments, calls, if/elif/else, while, for over range, return.

What is modelled: the 32 lanes of a warp take every step together. Where they disagree on a branch, the warp runs both
sides one after the other, each with only its own lanes active, and they join again after it. With launch(..., shared=n)
a block has n numbers that all its threads see, `shared`; at syncthreads() a warp waits for the block's other warps.
What is not modelled: time, caches, and the order of warps (here each goes as far as it can before the next one starts;
on a GPU in any order, many at once).
"""

import ast
import inspect
import math
import textwrap
from typing import NamedTuple

import numpy
import torch

from flashlab.validate import describe

WARP = 32                  # lanes; the same on every NVIDIA GPU so far
SECTOR = 32                # bytes: the smallest piece of memory that a load or store can move
MAX_BLOCK = 1024           # threads; a larger block does not launch
MAX_STEPS = 50_000         # of one launch, against loops that never end


class Dim3(NamedTuple):
    x: int = 1
    y: int = 1
    z: int = 1


class Access(NamedTuple):
    """One load or store instruction of a warp: the byte offset that each active lane asks for."""

    array: str
    kind: str              # "load" or "store"
    offsets: tuple

    @property
    def sectors(self):
        return len({offset // SECTOR for offset in self.offsets})


class Step(NamedTuple):
    """One line, taken by one warp: the lanes that are active do it, the others wait."""

    block: Dim3
    warp: int              # within its block
    line: int              # of the kernel, its def is line 1
    source: str
    active: tuple          # 32 booleans
    accesses: tuple


class _OnlyInAKernel:
    def refuse(self, *_):
        raise RuntimeError("threadIdx, blockIdx, blockDim, gridDim, shared and syncthreads exist only inside a kernel "
                           "that launch() runs; shared also needs launch(..., shared=how many numbers)")

    __getattr__ = __getitem__ = __setitem__ = __call__ = refuse


threadIdx = blockIdx = blockDim = gridDim = shared = syncthreads = _OnlyInAKernel()      # noqa: N816  CUDA's own names


# ---- kernels: the same lines as in flashlab_course/gpu/cuda


def vector_add(A, B, C, N):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < N:
        C[i] = A[i] + B[i]


def matrix_add(A, B, C, rows, cols):
    col = blockIdx.x * blockDim.x + threadIdx.x            # x, the lanes' own direction, walks along a row
    row = blockIdx.y * blockDim.y + threadIdx.y
    if row < rows and col < cols:
        C[row * cols + col] = A[row * cols + col] + B[row * cols + col]


def matrix_add_down_columns(A, B, C, rows, cols):
    row = blockIdx.x * blockDim.x + threadIdx.x            # x walks down a column: right, from scattered addresses
    col = blockIdx.y * blockDim.y + threadIdx.y
    if row < rows and col < cols:
        C[row * cols + col] = A[row * cols + col] + B[row * cols + col]


def two_paths(X, N, period, rounds):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < N:
        x = X[i]
        if i // period % 2 == 0:                           # neighbours agree in groups of `period`
            for _ in range(rounds):
                x = x * 0.5 + 1.0
        else:
            for _ in range(rounds):
                x = x * 0.25 - 1.0
        X[i] = x


def block_sum(X, Sums):
    t = threadIdx.x                                        # a block is a power of two of threads
    shared[t] = X[blockIdx.x * blockDim.x + t]
    syncthreads()                                          # all numbers of the block are there
    half = blockDim.x // 2
    while half > 0:
        if t < half:
            shared[t] = shared[t] + shared[t + half]
        syncthreads()                                      # all sums of this round are there
        half = half // 2
    if t == 0:
        Sums[blockIdx.x] = shared[0]


# ---- the interpreter


def launch(kernel, grid, block, shared=0):
    """`launch(kernel, grid, block)(*arguments)` runs the kernel once per thread and returns a Trace.

    grid, block   blocks in the grid, threads in a block: a number, or a tuple (x, y, z) of up to three
    shared        how many numbers of shared memory each block has; NaN until they are written

    Raises: ValueError, TypeError for a grid, a block or an argument that a GPU would refuse; IndexError, with the
            thread and the line, for an access outside a tensor; SyntaxError for Python beyond the list above;
            RuntimeError for a barrier that some lanes of a warp, or some warps of a block, never reach
    """
    grid, block = _dim3("grid", grid), _dim3("block", block)
    if math.prod(block) > MAX_BLOCK:
        raise ValueError(f"block has {math.prod(block)} threads, a GPU allows {MAX_BLOCK}")
    body, lines = _parse(kernel)
    names = list(inspect.signature(kernel).parameters)

    def run(*arguments):
        if len(arguments) != len(names):
            raise TypeError(f"{kernel.__name__} takes {len(names)} arguments ({', '.join(names)}), "
                            f"got {len(arguments)}")
        log, trace = [], Trace(kernel.__name__, grid, block, lines)
        given = {name: _Pointer(name, value, log) if isinstance(value, torch.Tensor) else value
                 for name, value in zip(names, arguments, strict=True)}
        threads = [Dim3(x, y, z) for z in range(block.z) for y in range(block.y) for x in range(block.x)]
        for index in (Dim3(x, y, z) for z in range(grid.z) for y in range(grid.y) for x in range(grid.x)):
            special = {"blockIdx": index, "blockDim": block, "gridDim": grid, "syncthreads": lambda: None}
            if shared:                                     # its accesses are not HBM's: they go to no log
                special["shared"] = _Pointer("shared", torch.full((shared,), torch.nan), [])
            warps = []
            for first in range(0, len(threads), WARP):     # x runs fastest: 32 threads next to each other are a warp
                lanes = [given | special | {"threadIdx": thread} for thread in threads[first:first + WARP]]
                warps.append(_Warp(trace, index, first // WARP, kernel, lanes, log).run(body, range(len(lanes))))
            _together(warps, kernel.__name__)
        return trace

    return run


def _together(warps, name):
    """Run the warps of a block, each up to its next barrier, until all have ended."""
    while warps:
        waiting = [warp for warp in warps if next(warp, None)]
        if waiting and len(waiting) < len(warps):
            raise RuntimeError(f"{name}: some warps wait at syncthreads() for others that have ended; "
                               "a GPU would hang or go on wrongly")
        warps = waiting


class _Warp:
    """32 lanes and one instruction at a time. Each lane is the dictionary of its thread's variables."""

    def __init__(self, trace, block, number, kernel, lanes, log):
        self.trace, self.block, self.number, self.lanes, self.log = trace, block, number, lanes, log
        self.globals = kernel.__globals__

    def run(self, statements, active):
        """Run statements with these lanes active; returns the lanes still in the kernel. Yields at each barrier."""
        active = list(active)
        for node in statements:
            if not active:
                break
            if isinstance(node, ast.If):
                answer = self.step(node, active)
                yes, no = [n for n in active if answer[n]], [n for n in active if not answer[n]]
                yes, no = (yield from self.run(node.body, yes)), (yield from self.run(node.orelse, no))
                active = sorted(yes + no)                  # both sides, then together
            elif isinstance(node, ast.While):
                active = yield from self.loop(node, active, lambda looping: self.step(node, looping))
            elif isinstance(node, ast.For):
                numbers = {n: iter(self.value(node, n)) for n in active}
                active = yield from self.loop(node, active, lambda looping: self.advance(node, looping, numbers))
            elif isinstance(node, ast.Return):
                self.step(node, active)
                active = []
            else:
                self.step(node, active)
                if node.barrier:
                    self.wait(node, active)
                    yield True
        return active

    def wait(self, node, active):
        if len(active) < len(self.lanes):
            raise RuntimeError(f"{self.trace.kernel}, line {node.lineno}: {len(active)} of {len(self.lanes)} lanes of "
                               "a warp reach syncthreads(). Every thread of the block has to; "
                               "a GPU would hang or go on wrongly")

    def loop(self, node, active, ask):
        """Go round for as long as any lane wants to; those that are done wait for the others."""
        done = []
        while active:
            again = ask(active)
            done += [n for n in active if not again[n]]
            active = yield from self.run(node.body, [n for n in active if again[n]])
        return sorted(done)

    def advance(self, node, active, numbers):
        """The next number of each lane's range, where it has one."""
        self.step(node, active, values=False)
        again = {}
        for n in active:
            number = next(numbers[n], None)
            again[n] = number is not None
            if again[n]:
                self.lanes[n][node.target.id] = number
        return again

    def step(self, node, active, values=True):
        """One line of the log. Returns each active lane's value of the statement's expression."""
        self.log.clear()
        answer, per_lane = {}, []
        for n in active:
            answer[n] = self.value(node, n) if values else None
            per_lane.append(tuple(self.log))
            self.log.clear()
        accesses = [Access(group[0][0], group[0][1], tuple(offset for _, _, offset in group))
                    for group in zip(*per_lane, strict=False)]     # the k-th access of each lane is one instruction
        mask = tuple(n in answer for n in range(WARP))
        source = self.trace.lines[node.lineno - 1]
        self.trace.add(Step(self.block, self.number, node.lineno, source, mask, tuple(accesses)))
        return answer

    def value(self, node, n):
        try:
            return eval(node.code, self.globals, self.lanes[n])
        except NotImplementedError:                        # a stub's own message
            raise
        except Exception as error:
            where = (f"{self.trace.kernel}, line {node.lineno} `{self.trace.lines[node.lineno - 1].strip()}`, "
                     f"block {tuple(self.block)}, thread {tuple(self.lanes[n]['threadIdx'])}: ")
            raise type(error)(where + str(error)) from None


class _Pointer:
    """What a kernel gets for a tensor: the address of its first number, and the numbers from there on."""

    def __init__(self, name, tensor, log):
        if tensor.device.type != "cpu":
            raise TypeError(f"{name} must be on the CPU, where the interpreter runs, got {describe(tensor)}")
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        flat = torch.as_strided(tensor.detach(), (extent if tensor.numel() else 0,), (1,))
        self.name, self.numbers, self.log = name, flat.numpy(), log

    def __getitem__(self, i):
        return self.numbers[self.visit("load", i)].item()

    def __setitem__(self, i, value):
        self.numbers[self.visit("store", i)] = value

    def visit(self, kind, i):
        if not isinstance(i, (int, numpy.integer)):
            raise TypeError(f"{self.name}[{i!r}]: an index must be an integer (// divides without a remainder)")
        if not 0 <= i < len(self.numbers):
            raise IndexError(f"{kind}s {self.name}[{i}], but {self.name} has {len(self.numbers)} elements. "
                             "A GPU stops only if the address belongs to no allocation; "
                             "else it reads or overwrites whatever lies there")
        self.log.append((self.name, kind, i * self.numbers.itemsize))
        return i


def _parse(kernel):
    """The kernel's statements, each with its compiled expression in `.code`, and its source lines."""
    source = textwrap.dedent(inspect.getsource(kernel))
    body = ast.parse(source).body[0].body
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, (ast.If, ast.While)):
                node.code = compile(ast.Expression(node.test), kernel.__name__, "eval")
            elif isinstance(node, ast.For) and isinstance(node.target, ast.Name) and not node.orelse:
                node.code = compile(ast.Expression(node.iter), kernel.__name__, "eval")
            elif isinstance(node, ast.Return) and node.value is None:
                node.code = compile("None", kernel.__name__, "eval")
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass, ast.Raise)):
                node.code = compile(ast.Module([node], []), kernel.__name__, "exec")
                node.barrier = isinstance(node, ast.Expr) and ast.unparse(node.value) == "syncthreads()"
            elif isinstance(node, ast.stmt):
                line = source.splitlines()[node.lineno - 1].strip()
                raise SyntaxError(f"{kernel.__name__}, line {node.lineno} `{line}`: the interpreter knows assignments, "
                                  "calls, if, while, for over range and a bare return")
    return body, source.splitlines()


def _dim3(name, value):
    sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    whole = lambda size: isinstance(size, int) and not isinstance(size, bool) and size >= 1
    if not 1 <= len(sizes) <= 3 or not all(map(whole, sizes)):
        raise ValueError(f"{name} must be one to three integers >= 1, got {value!r}")
    return Dim3(*sizes)


class Trace:
    """What every warp did, in order: `steps`, and what can be counted from them."""

    def __init__(self, kernel, grid, block, lines):
        self.kernel, self.grid, self.block, self.lines, self.steps = kernel, grid, block, lines, []

    def add(self, step):
        if len(self.steps) == MAX_STEPS:
            raise RuntimeError(f"{self.kernel} has taken {MAX_STEPS} steps: a loop that never ends, or a large launch")
        self.steps.append(step)

    @property
    def warp_steps(self):
        """Instructions issued: a warp pays for a step in full, however few of its lanes are active."""
        return len(self.steps)

    @property
    def lane_use(self):
        """Active lanes over all lanes, over all steps: 1.0 is a GPU with nothing idle."""
        return sum(sum(step.active) for step in self.steps) / (WARP * len(self.steps))

    @property
    def threads(self):
        """Threads launched."""
        return math.prod(self.grid) * math.prod(self.block)

    @property
    def storing_threads(self):
        """Threads that stored something."""
        stored = (step for step in self.steps if any(access.kind == "store" for access in step.accesses))
        return len({(step.block, step.warp, lane) for step in stored for lane in range(WARP) if step.active[lane]})

    def active_lanes(self, line):
        """How often a lane took this line; its warps held WARP lanes each time, active or idle."""
        return sum(sum(step.active) for step in self.steps if step.line == line)

    def idle_lanes(self, line):
        """How often a lane waited while its warp took this line."""
        return sum(WARP - sum(step.active) for step in self.steps if step.line == line)

    def sectors(self, kind):
        """(sectors moved, instructions) of all "load"s or all "store"s: their ratio is what a profiler shows."""
        counts = [access.sectors for step in self.steps for access in step.accesses if access.kind == kind]
        return sum(counts), len(counts)

    def warp(self, block=0, warp=0):
        """The steps of one warp. `block` is a number (x runs fastest) or an index."""
        if isinstance(block, int):
            block = (block % self.grid.x, block // self.grid.x % self.grid.y, block // (self.grid.x * self.grid.y))
        return [step for step in self.steps if step.block == Dim3(*block) and step.warp == warp]

    def text(self, block=0, warp=0):
        """One warp as a picture: a row a step, a column a lane, # active and . idle."""
        steps = self.warp(block, warp)
        sources = [step.source.split("#")[0].rstrip() for step in steps]
        width = max(map(len, sources), default=0)
        masks = ["".join(".#"[on] for on in step.active) for step in steps]
        rows = [f"{source:<{width}}  {mask}" for source, mask in zip(sources, masks, strict=True)]
        return "\n".join([f"{self.kernel}: block {tuple(steps[0].block) if steps else block}, warp {warp}", *rows])

    def __str__(self):
        return (f"{self.text()}\n{self.warp_steps} steps in all, {self.lane_use:.0%} of the lanes active")
