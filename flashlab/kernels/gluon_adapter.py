"""The only door to Gluon: every name of Triton's that the Hopper kernels use and that Triton does not promise to keep.

Gluon is Triton's lower layer, where a kernel itself says which warps do what. It is experimental, and names move from
version to version. With a version that VERSIONS does not list, check this file first, then run tests/test_hopper.py.
"""

# ruff: noqa: F401                     the names are for the kernels
from types import ModuleType

from triton._C.libtriton import ir
from triton.experimental.gluon import jit
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared as fence
from triton.experimental.gluon.language.nvidia.hopper import mbarrier
from triton.experimental.gluon.language.nvidia.hopper import tma as triton_tma
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma as wgmma
from triton.experimental.gluon.language.nvidia.hopper import warpgroup_mma_wait as wgmma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.core import _aggregate, base_value
from triton.runtime.jit import JITCallable

VERSIONS = ("3.6", "3.7", "3.8", "3.9")     # of Triton: the kernels were compiled with these; 3.6 and 3.7 ran on a GPU

thread_barrier = getattr(gl, "barrier", None) or gl.thread_barrier     # its name before Triton 3.7

tma = ModuleType("tma")                # one name for each copy; the second of two is Triton's name before 3.8
tma.load = getattr(triton_tma, "async_load", None) or triton_tma.async_copy_global_to_shared
tma.store = getattr(triton_tma, "async_store", None) or triton_tma.async_copy_shared_to_global
tma.store_wait = triton_tma.store_wait


class _Fields(JITCallable):
    """The names of an aggregate's fields, as part of what tells Triton that a compiled kernel is out of date."""

    used_global_vals, cache_key = {}, ""

    def __init__(self, names):
        self.cache_key, self.__name__ = ", ".join(names), "fields"


def aggregate(cls):
    """A class of values that travel through a kernel together, and methods under @jit.

    Its `fields` are names of tensors, descriptors or other aggregates, or of None where the compiled kernel has none;
    its `constants` are names of what is known when the kernel is compiled. The constructor takes all of them in that
    order, or by name.
    """
    constants = getattr(cls, "constants", "").split()
    fields = cls.fields.split() + constants

    def construct(self, *args, _semantic=None, **kwargs):
        for name, value in (dict(zip(fields, args, strict=False)) | kwargs).items():
            value = value.value if isinstance(value, gl.constexpr) else value
            if isinstance(value, (int, float)) and name not in constants:
                value = _semantic.to_tensor(value)
            setattr(self, name, value if isinstance(value, base_value) else gl.constexpr(value))

    cls.__init__, cls.__annotations__ = construct, dict.fromkeys(fields, base_value)
    made = _aggregate(cls)
    made.hash_attrs = [_Fields(fields), *(one for one in made.hash_attrs if isinstance(one, JITCallable))]
    return made


@builtin
def fork(shared, consumer, consumers, others, _semantic=None, _generator=None):
    """Send every warp to its own work: `consumers` warpgroups to consumer(*shared, me), and one more warp to each of
    `others`.

    Consumer 0 has the launch's own warps, and the registers that are left.
    """
    consumers, others = consumers.value, [getattr(one, "value", one) for one in others]
    registers = {2: 240, 3: 160, 4: 112}[consumers]    # of a thread of the others
    shared = [one if isinstance(one, base_value) else gl.constexpr(one) for one in shared]
    work = [(consumer, gl.tuple([*shared, gl.constexpr(me)])) for me in range(consumers)]
    work += [(one, gl.tuple(shared)) for one in others]
    warps = [4] * (consumers - 1) + [1] * len(others)
    limits = [registers] * (consumers - 1) + [24] * len(others)
    _semantic.warp_specialize(work, warps, limits, _generator)


@builtin
def add_by_tma(descriptor, at, tile, _semantic=None):
    """Have TMA add a tile in shared memory to a tensor in HBM. The sum is under way until tma.store_wait."""
    at = _semantic._convert_to_ir_values(at, require_i64=False)
    _semantic.builder.create_async_tma_reduce(ir.DESCRIPTOR_REDUCE_KIND.ADD, descriptor.handle, at, tile.handle)
