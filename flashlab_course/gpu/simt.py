"""How a GPU runs a kernel, small enough to read: a grid of blocks, blocks of warps, warps of 32 lanes in lock step.

    trace = launch(vector_add, grid=2, block=64)(A, B, C, N)       # CUDA C++: vector_add<<<2, 64>>>(A, B, C, N)
    trace.steps                                                     # each step of each warp, lane by lane

A kernel is a Python function written for one thread, line by line as in CUDA C++ (gpu/cuda/*.cu). It finds its element
from threadIdx, blockIdx and blockDim and returns nothing. Tensors arrive as pointers: A[i] is the i-th number from A's
first. A kernel may use assignments, calls, if/elif/else, while, for over range, and return.

The 32 lanes of a warp take every step together. Where they disagree on a branch, the warp runs both sides one after the
other, each with only its own lanes active. With launch(..., shared=n) the threads of a block share n numbers, `shared`;
at syncthreads() a warp waits for the block's other warps. Not modelled: time, caches, and the order of warps, which run
one after the other here.
"""

import ast
import inspect
import math
import textwrap
import types
from typing import NamedTuple

import numpy
import torch

from flashlab.validate import describe

WARP = 32                  # lanes; the same on every NVIDIA GPU so far
SECTOR = 32                # bytes: the smallest piece of memory that a load or store can move
MAX_BLOCK = 1024           # threads; a larger block does not launch
MAX_STEPS = 50_000         # of one launch, against loops that never end

listeners = []             # each is called with (kernel, arguments by name, trace) after a launch


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
    """One line, taken by one warp: the active lanes run it, the others wait."""

    block: Dim3
    warp: int              # within its block
    line: int              # of the kernel, its def is line 1
    source: str
    active: tuple          # 32 booleans
    accesses: tuple        # of tensors in HBM, and of shared memory
    shared: tuple


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
    Raises: IndexError for an access outside a tensor, RuntimeError for a barrier that some threads never reach,
            SyntaxError for Python beyond the list above
    """
    grid, block = _dim3("grid", grid), _dim3("block", block)
    if math.prod(block) > MAX_BLOCK:
        raise ValueError(f"block has {math.prod(block)} threads, a GPU allows {MAX_BLOCK}")
    code, names = _Stepwise(kernel), list(inspect.signature(kernel).parameters)

    def run(*arguments):
        log, trace = [], Trace(kernel.__name__, grid, block, code.lines)
        if len(arguments) != len(names):
            raise TypeError(f"{code.name} takes {len(names)} arguments ({', '.join(names)}), got {len(arguments)}")
        given = dict(zip(names, arguments, strict=True))
        for name, value in given.items():
            if isinstance(value, torch.Tensor):
                given[name] = _Pointer(name, value, log)
        threads = _places(block)
        for index in _places(grid):
            special = {"blockIdx": index, "blockDim": block, "gridDim": grid, "syncthreads": lambda: None}
            if shared:
                special["shared"] = _Pointer("shared", torch.full((shared,), torch.nan), log)
            warps = []
            for first in range(0, len(threads), WARP):     # x runs fastest: 32 neighbours are a warp
                mine = threads[first:first + WARP]
                lanes = [code.start(given, special | {"threadIdx": thread}) for thread in mine]
                warps.append(_run_warp(code, trace, index, first // WARP, mine, lanes, log))
            while warps:                                   # each runs up to its next barrier, until all have ended
                waiting = [warp for warp in warps if next(warp, None)]
                if waiting and len(waiting) < len(warps):
                    raise RuntimeError(f"{code.name}: some warps wait at syncthreads() for others that have ended; "
                                       "a GPU would hang or go on wrongly")
                warps = waiting
        for listener in listeners:
            listener(kernel, given, trace)
        return trace

    return run


def _places(size):
    return [Dim3(x, y, z) for z in range(size.z) for y in range(size.y) for x in range(size.x)]


def _run_warp(code, trace, block, warp, threads, lanes, log):
    """Run up to 32 lanes, generators of a _Stepwise kernel, in lock step; yields at each barrier.

    The lanes that are furthest behind in the source go on, together. So both sides of a branch run one after the other,
    and lanes that have left a loop wait for the rest.
    """
    ahead = {n: next(lane) for n, lane in enumerate(lanes)}            # the statement that each lane comes to next
    while ahead:
        number = min(ahead.values())
        statement, active, per_lane = code.statements[number], [n for n in ahead if ahead[n] == number], []
        for n in active:
            log.clear()
            try:
                ahead[n] = next(lanes[n], None)
            except NotImplementedError:                    # a stub's own message
                raise
            except Exception as error:
                where = (f"{code.name}, line {statement.line} `{statement.source.strip()}`, "
                         f"block {tuple(block)}, thread {tuple(threads[n])}: ")
                raise type(error)(where + str(error)) from None
            per_lane.append(tuple(log))
        trace.add(block, warp, statement, active, per_lane)
        if statement.barrier:
            if len(active) < len(lanes):
                raise RuntimeError(f"{code.name}, line {statement.line}: {len(active)} of {len(lanes)} lanes of "
                                   "a warp reach syncthreads(). Every thread of the block has to; "
                                   "a GPU would hang or go on wrongly")
            yield True
        ahead = {n: number for n, number in ahead.items() if number is not None}


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
            raise TypeError(f"{self.name}[{i!r}]: an index must be an integer, as row * cols + col (divide with //)")
        if not 0 <= i < len(self.numbers):
            raise IndexError(f"{kind}s {self.name}[{i}], but {self.name} has {len(self.numbers)} elements. "
                             "A GPU stops only if the address belongs to no allocation; "
                             "else it reads or overwrites whatever lies there")
        self.log.append((self.name, kind, i * self.numbers.itemsize))
        return i


class Statement(NamedTuple):
    line: int              # of the kernel, its def is line 1
    source: str
    barrier: bool


class _Stepwise(ast.NodeTransformer):
    """A kernel as a generator that stops before each of its statements and yields the statement's number."""

    def __init__(self, kernel):
        source = textwrap.dedent(inspect.getsource(kernel))
        self.name, self.globals = kernel.__name__, kernel.__globals__
        self.lines, self.statements = source.splitlines(), []
        function = self.generic_visit(ast.parse(source).body[0])
        function.decorator_list = []
        made = {}
        exec(compile(ast.fix_missing_locations(ast.Module([function], [])), self.name, "exec"), self.globals, made)
        self.code = made[self.name].__code__

    def start(self, arguments, special):
        """The generator of one thread. special: threadIdx and the other names that only exist in a kernel."""
        return types.FunctionType(self.code, self.globals | special)(**arguments)

    def visit(self, node):
        if not isinstance(node, ast.stmt):
            return node
        stop, source = ast.Yield(ast.Constant(len(self.statements))), self.lines[node.lineno - 1]
        self.statements.append(Statement(node.lineno, source, ast.unparse(node) == "syncthreads()"))
        if isinstance(node, ast.While):                    # stops each time before the condition is asked
            node.test = ast.BoolOp(ast.Or(), [stop, node.test])
            return self.generic_visit(node)
        if isinstance(node, ast.For):                      # and before the range is asked for its next number
            node.iter = ast.BoolOp(ast.Or(), [stop, node.iter])
            node = self.generic_visit(node)
            node.body.append(ast.Expr(stop))
            return node
        simple = (ast.If, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Pass, ast.Raise)
        if isinstance(node, simple) or (isinstance(node, ast.Return) and node.value is None):
            return [ast.Expr(stop), self.generic_visit(node)]
        raise SyntaxError(f"{self.name}, line {node.lineno} `{source.strip()}`: the interpreter knows "
                          "assignments, calls, if, while, for over range and a bare return")


def _dim3(name, value):
    sizes = value if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int and size >= 1 for size in sizes):
        raise ValueError(f"{name} must be one to three integers >= 1, got {value!r}")
    return Dim3(*sizes)


class Trace:
    """What every warp did, in order: `steps`, and what can be counted from them. `lines`: the kernel's source"""

    def __init__(self, kernel, grid, block, lines):
        self.kernel, self.grid, self.block, self.lines, self.steps = kernel, grid, block, lines, []

    def add(self, block, warp, statement, lanes, per_lane):
        """Add a step. per_lane: what each of these lanes loaded and stored, as (array, kind, offset)."""
        if len(self.steps) == MAX_STEPS:
            raise RuntimeError(f"{self.kernel} has taken {MAX_STEPS} steps: a loop that never ends, or a large launch")
        accesses, shared = [], []
        for group in zip(*per_lane, strict=False):         # the k-th access of each lane is one instruction
            array, kind, _ = group[0]
            (shared if array == "shared" else accesses).append(Access(array, kind, tuple(one[2] for one in group)))
        active = tuple(n in lanes for n in range(WARP))
        self.steps.append(Step(block, warp, statement.line, statement.source, active, tuple(accesses), tuple(shared)))

    @property
    def warp_steps(self):
        """Instructions issued: a warp pays for a step in full, however few of its lanes are active."""
        return len(self.steps)

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
        """How often a lane took this line."""
        return sum(sum(step.active) for step in self.steps if step.line == line)

    def idle_lanes(self, line):
        """How often a lane waited while its warp took this line."""
        return sum(WARP - sum(step.active) for step in self.steps if step.line == line)

    def sectors(self, kind):
        """(sectors moved, instructions) of all "load"s or all "store"s: their ratio is what a profiler shows."""
        counts = [access.sectors for step in self.steps for access in step.accesses if access.kind == kind]
        return sum(counts), len(counts)

    def warp(self, block=0, warp=0):
        """The steps of one warp of a block, which is given by its number in the grid; x runs fastest."""
        index = _places(self.grid)[block]
        return [step for step in self.steps if step.block == index and step.warp == warp]
