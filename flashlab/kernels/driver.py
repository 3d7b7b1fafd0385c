"""Launches by the CUDA driver, of kernels that Triton has compiled, with arguments that are packed once.

Triton's launcher packs all arguments and encodes all tensor descriptors in each launch, in Python. In the launches of a
plan only addresses change from call to call: here they are all that is written.
Private names of Triton's compiled kernels are used here alone. The order in which Triton passes arguments is not
promised either: cuFuncGetParamInfo must agree with their number and sizes, else the launch is not packed.
"""

import ctypes
import functools
import itertools

P, INT = ctypes.c_void_p, ctypes.c_int
SCALARS = {"i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
           "i64": ctypes.c_int64, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "fp32": ctypes.c_float}
TYPE_FOR_HOST = {8: 10, 9: 8, 10: 9}                   # TMA's number of an element type, where Triton has another
PROMOTE_TO_128_BYTES = 2                               # what a TMA load fetches into L2 at least
MAP_BYTES, MAP_ALIGNMENT = 128, 64


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [(name, ctypes.c_uint) for name in ("x", "y", "z", "threads", "threads_y", "threads_z", "shared")] + [
        ("stream", P), ("attributes", P), ("how_many_attributes", ctypes.c_uint)]


@functools.cache
def driver(name, *types):
    """A function of the driver. Raises: OSError or AttributeError if there is none"""
    function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    function.argtypes, function.restype = types, INT
    return function


def call(name, types, *arguments):
    """Raises: RuntimeError with the driver's error code"""
    if error := driver(name, *types)(*arguments):
        raise RuntimeError(f"{name}: CUDA error {error}")


class Packed:
    """Launches, one after the other. cells: by a tensor's name, where all kernels find its address."""

    def __init__(self, launches, compiled, names):
        """names: the name of each tensor by its id. Raises: some exception where a launch cannot be packed"""
        self.cells = {name: ctypes.c_uint64() for name in names.values()}
        self.maps = {name: [] for name in names.values()}          # the tensor maps with this tensor's address
        self.steps = [self.step(*each, names) for each in zip(launches, compiled, strict=True)]
        self.kept, self.context = compiled, P()                    # a kernel is unloaded once nobody keeps it
        call("cuCtxGetCurrent", [P], ctypes.byref(self.context))

    def step(self, launch, compiled, names):
        (_, grid, arguments), data = launch, compiled.metadata
        if data.num_ctas != 1 or data.launch_cooperative_grid or data.launch_pdl or (
                data.global_scratch_size or data.profile_scratch_size):
            raise ValueError("an attribute of the launch that is not packed here")
        packed, metas = [], iter(getattr(data, "tensordesc_meta", None) or ())
        for name, kind in compiled.src.signature.items():
            value = arguments.get(name)
            if kind.startswith("tensordesc"):
                packed += [tensor_map(value, next(metas)), *map(ctypes.c_int32, value.shape),
                           *map(ctypes.c_int64, value.strides)]
                self.maps[names[id(value.base)]].append(ctypes.addressof(packed[-1 - 2 * len(value.shape)]))
            elif kind[0] == "*":
                packed.append(self.cells[names[id(value)]])
            elif kind != "constexpr":
                packed.append(SCALARS[kind](value))
        packed += [ctypes.c_uint64(0)] * 2                         # scratch memory, of which these kernels take none
        if [ctypes.sizeof(one) for one in packed] != sizes_of_parameters(compiled.function):
            raise ValueError("Triton passes arguments in another order")
        pointers = (P * len(packed))(*map(ctypes.addressof, packed))
        config = Config(*(*grid, 1, 1)[:3], 32 * data.num_warps, 1, 1, data.shared, None, None, 0)
        return config, ctypes.byref(config), P(compiled.function), pointers, packed

    def launch(self, tensors, stream):
        """Launch all on a stream, with these tensors by name."""
        replace, start = driver("cuTensorMapReplaceAddress", P, P), driver("cuLaunchKernelEx", P, P, P, P)
        for name, cell in self.cells.items():
            address = tensors[name].data_ptr()
            if address != cell.value:
                cell.value = address
                for at in self.maps[name]:
                    replace(at, address)
        driver("cuCtxSetCurrent", P)(self.context)                 # autograd's threads may not have entered it yet
        for config, reference, function, pointers, _ in self.steps:
            config.stream = stream
            if error := start(reference, function, pointers, None):
                raise RuntimeError(f"cuLaunchKernelEx: CUDA error {error}")


def tensor_map(descriptor, meta):
    """What tells TMA how a tensor lies in memory, encoded as Triton does: all but its address stays as it is."""
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    found = (ctypes.c_char * MAP_BYTES).from_buffer(room, -ctypes.addressof(room) % MAP_ALIGNMENT)
    shape, strides, n = descriptor.shape, descriptor.strides, len(descriptor.shape)
    longs, ints = ctypes.c_uint64 * n, ctypes.c_uint32 * n
    kind, size = meta["elem_type"], meta["elem_size"]
    call("cuTensorMapEncodeTiled", [P, INT, INT, *[P] * 5, *[INT] * 4], ctypes.addressof(found),
         TYPE_FOR_HOST.get(kind, kind), n, descriptor.base.data_ptr(), longs(*shape[::-1]),
         longs(*(step * size for step in strides[-2::-1])), ints(*meta["block_size"][::-1]), ints(*[1] * n),
         0, meta["swizzle"], PROMOTE_TO_128_BYTES, 0)
    return found


def sizes_of_parameters(function):
    """The bytes of each parameter of a kernel."""
    found, size = [], ctypes.c_size_t()
    ask = driver("cuFuncGetParamInfo", P, ctypes.c_size_t, P, P)
    for n in itertools.count():
        if ask(function, n, ctypes.byref(ctypes.c_size_t()), ctypes.byref(size)):
            return found
        found.append(size.value)
