"""Input checks shared by every rung: an error names the argument, what it was and what was expected."""

import numbers
import reprlib

import torch

from flashlab import torch_internals

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SHAPES = {2: "(N, d)", 3: "(T, H, d)", 4: "(B, H, N, d)"}
LARGEST_SCALE = 1e8    # in float32 kernels multiply the scale by log2(e), and by -1e30 where a row sees no key
MAX_HEAD_DIM = 256     # of the kernels: a program keeps Q_i and O_i on chip whole, and wider heads do not fit


def describe(x):
    """x in an error message, in one line."""
    if isinstance(x, torch.Tensor):
        if x.is_nested:
            return f"a nested tensor on {x.device}"
        layout = "" if x.layout == torch.strided else f"{str(x.layout).removeprefix('torch.').strip('_')} "
        return f"a {layout}{name_of(x.dtype)} tensor of shape {tuple(x.shape)} on {x.device}"
    text = reprlib.repr(x)                             # of a list the first few only
    return f"{text if len(text) <= 80 else text[:80] + '...'} ({type(x).__name__})"


def name_of(dtype):
    """float16"""
    return str(dtype).removeprefix("torch.")


def check_qkv(Q, K, V, *, ndim=2, dtypes=FLOATS, names=("K", "V")):
    """Raise TypeError or ValueError unless Q, K, V can be attended to. names: of K and V in the message.

    Shapes: Q (N_q, d), K (N_k, d), V (N_k, d_v); with ndim=4 each has (B, H) before them;
            with ndim=3: Q (T_q, H_q, d), K (T_k, H_kv, d), V (T_k, H_kv, d_v)
    """
    k, v = names
    for name, letter, T in (("Q", "d", Q), (k, "d", K), (v, "d_v", V)):
        check_dense(name, T)
        if T.ndim != ndim:
            raise ValueError(f"{name} must have {ndim} dimensions {SHAPES[ndim]}, got {describe(T)}")
        if T.dtype not in dtypes:
            raise TypeError(f"{name} must be one of {', '.join(map(name_of, dtypes))}, got {describe(T)}")
        if T.dtype != Q.dtype or T.device != Q.device:
            raise TypeError(f"{name} must match Q's dtype and device, {Q.dtype} on {Q.device}, got {describe(T)}")
        if T.shape[-1] == 0:
            raise ValueError(f"{name} must have head dimension {letter} >= 1, got {describe(T)}")
    if K.shape[-1] != Q.shape[-1]:
        raise ValueError(f"{k} must have Q's head dimension d = {Q.shape[-1]}, got {describe(K)}")
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError(f"{v} must have {k}'s sizes {tuple(K.shape[:-1])} before its last dimension, "
                         f"got {describe(V)}")


def check_dense(name, T):
    """Raise TypeError unless T is an ordinary tensor, neither sparse nor nested."""
    if not isinstance(T, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {describe(T)}")
    if T.is_nested or T.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, strided and not nested, got {describe(T)}")


def check_heads(Q, K):
    """Raise ValueError unless K (B, H_kv, N_k, d) has Q's batch size and H_q is a multiple of H_kv."""
    if K.shape[0] != Q.shape[0]:
        raise ValueError(f"K must have Q's batch size B = {Q.shape[0]}, got {describe(K)}")
    H_q, H_kv = Q.shape[1], K.shape[1]
    if H_q == 0 or H_kv == 0 or H_q % H_kv:
        raise ValueError(f"Q must have a multiple of K's heads, at least one, got H_q = {H_q} and H_kv = {H_kv}")


def check_for_kernels(Q, V, v="V"):
    """Raise TypeError or ValueError unless the kernels take Q's dtype and both head dimensions. v: what V is called"""
    if Q.dtype == torch.float64:
        raise TypeError(f"Q must be float16, bfloat16 or float32 for a kernel, got {describe(Q)}")
    for name, letter, T in (("Q", "d", Q), (v, "d_v", V)):
        if T.shape[-1] > MAX_HEAD_DIM:
            raise ValueError(f"{name} must have head dimension {letter} <= {MAX_HEAD_DIM}, got {describe(T)}")


def check_like(**expected):
    """Raise unless each keyword, name=(T, shape, dtype), is a tensor of that shape and dtype: dO, L, a mask, ..."""
    for name, (T, shape, dtype) in expected.items():
        wanted = f"a {name_of(dtype)} tensor of shape {tuple(shape)}"
        right_dtype = isinstance(T, torch.Tensor) and T.dtype == dtype
        if not right_dtype or T.shape != tuple(shape):
            raise (ValueError if right_dtype else TypeError)(f"{name} must be {wanted}, got {describe(T)}")


def check_int32(name, T, Q):
    """Raise TypeError unless T is an int32 tensor on Q's device."""
    if isinstance(T, torch.Tensor) and (T.dtype != torch.int32 or T.device != Q.device):
        raise TypeError(f"{name} must be an int32 tensor on Q's device {Q.device}, got {describe(T)}")
    check_dense(name, T)


def check_cu_seqlens(cu_seqlens_q, cu_seqlens_k, Q, K):
    """Raise unless these mark the beginning and end of the sequences packed in Q (..., T_q, d) and K (..., T_k, d).

    Their numbers are checked on the CPU only: a call should not wait for a GPU.
    """
    for name, T, N in (("cu_seqlens_q", cu_seqlens_q, Q.shape[-2]), ("cu_seqlens_k", cu_seqlens_k, K.shape[-2])):
        check_int32(name, T, Q)
        if T.ndim != 1 or len(T) == 0:
            raise ValueError(f"{name} must have one dimension, (batch + 1,), and one entry or more, "
                             f"got {describe(T)}")
        if len(T) != len(cu_seqlens_q):
            raise ValueError(f"{name} must have as many entries as cu_seqlens_q, {len(cu_seqlens_q)}, "
                             f"got {describe(T)}")
        places = T.tolist() if T.device.type == "cpu" and torch_internals.has_numbers(T) else []
        for n, (low, place) in enumerate(zip([0, *places], places, strict=False)):
            if not low <= place <= (N if n else 0):
                raise ValueError(f"{name} must begin with 0, never fall and end with {N} at most, the rows there are, "
                                 f"got {place} as entry {n}")


def check_scale(scale, d):
    """The softmax scale: 1/sqrt(d) unless given. Raises unless it is a number of at most LARGEST_SCALE in size."""
    if scale is None:
        return d**-0.5
    if not is_number(scale):
        raise TypeError(f"scale must be a number or None for 1/sqrt(d), got {describe(scale)}")
    if not -LARGEST_SCALE <= scale <= LARGEST_SCALE:   # neither is NaN
        raise ValueError(f"scale must lie between -1e8 and 1e8, got {describe(scale)}")
    return float(scale)


def check_dropout(dropout_p):
    """Raise unless dropout_p is a number in [0, 1)."""
    if not is_number(dropout_p):
        raise TypeError(f"dropout_p must be a number in [0, 1), got {describe(dropout_p)}")
    if not 0 <= dropout_p < 1:
        raise ValueError(f"dropout_p must lie in [0, 1), got {dropout_p!r}")


def is_integer(x):
    """Whether x is an integer, Python's or NumPy's, and not a bool."""
    return isinstance(x, (int, numbers.Integral)) and not isinstance(x, bool)


def check_window(window, causal, N_q, N_k):
    """causal and window in their shortest form: (causal, None), or (False, (left, right)) with -1 for no limit.

    Query i sees the keys from i + N_k - N_q - left to i + N_k - N_q + right. causal is right = 0
    """
    check_bool(causal=causal)
    if window is None:
        return causal, None
    if not isinstance(window, (tuple, list)) or len(window) != 2 or not all(map(is_integer, window)):
        raise TypeError(f"window must be None or two integers (left, right), got {describe(window)}")
    left, right = (int(limit) for limit in window)     # from NumPy's
    if min(left, right) < -1:
        raise ValueError(f"window must have left and right >= 0, or -1 for no limit, got {left, right}")
    right = 0 if causal else right
    if left >= N_k - 1:                                # the last query sees all keys before it, so the others do
        left = -1
    if right >= N_q - 1 and right > 0:        # the first query sees all keys after it; right = 0 is causal's own case
        right = -1
    if left == -1 and right <= 0:
        return right == 0, None
    return False, (left, right)


def check_bool(**flags):
    """Raise TypeError unless every keyword is True or False."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {describe(value)}")


def check_positive(**sizes):
    """Raise unless every keyword is an integer >= 1 (tile sizes, byte counts)."""
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name} must be an integer >= 1, got {describe(value)}")
        if value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value}")


def check_power_of_two(smallest, **sizes):
    """Raise unless every keyword is a power of two >= smallest (tile sizes of a Triton kernel)."""
    check_positive(**sizes)
    for name, value in sizes.items():
        if value < smallest or value & (value - 1):
            raise ValueError(f"{name} must be a power of two >= {smallest}, got {value}")


def is_number(x):
    """Whether x is a real number, Python's or NumPy's, and not a bool."""
    return isinstance(x, (int, float, numbers.Real)) and not isinstance(x, bool)
