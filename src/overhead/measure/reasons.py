"""What a framework's error means, in words: declined or failed, with the reason that a record and a page show."""

from __future__ import annotations

from overhead.loops import Declined

# What the frameworks' errors hold, by what it means; the text is CUDA's, XLA's, TensorFlow's and CuPy's own.
OUT_OF_MEMORY = (
    "RESOURCE_EXHAUSTED",  # XLA
    "ResourceExhaustedError",  # TensorFlow
    "OutOfMemoryError",  # CuPy
    "CUDA_ERROR_OUT_OF_MEMORY",
    "cudaErrorMemoryAllocation",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
DRIVER_TOO_OLD = (
    "driver version is insufficient",
    "InsufficientDriver",
    "UNSUPPORTED_PTX_VERSION",
    "UnsupportedPtxVersion",
    "compiled with an unsupported toolchain",
)
DEVICE_LOST = (
    "GPU is lost",
    "CUDA_ERROR_NO_DEVICE",
    "cudaErrorNoDevice",
    "CUDA_ERROR_DEVICE_UNAVAILABLE",
    "cudaErrorDevicesUnavailable",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "cudaErrorECCUncorrectable",
    "CUDA_ERROR_LAUNCH_FAILED",
    "cudaErrorLaunchFailure",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "cudaErrorIllegalAddress",
)
NO_GPU = (  # JAX
    "Unknown backend: 'gpu'",
    "Unknown backend gpu",
    "Unable to initialize backend 'cuda'",
    "Backend 'cuda' failed to initialize",
    "Unknown backend cuda",
)


def explain(error: Exception, device: str) -> tuple[str, str]:
    """The status and the reason of a record whose command ended in `error`, on a loop for `device`."""
    said = str(error) if isinstance(error, Declined) else f"{type(error).__name__}: {error}"
    if any(text in said for text in DRIVER_TOO_OLD):
        return "declined", f"the NVIDIA driver is too old for this framework's CUDA (see overhead doctor): {said}"
    if isinstance(error, Declined):
        return "declined", said
    if isinstance(error, ImportError):
        return "declined", missing(error)
    if any(text in said for text in OUT_OF_MEMORY):
        return "failed", f"out of {'device ' if device == 'gpu' else ''}memory: {said}"
    if isinstance(error, MemoryError):
        return "failed", f"out of memory: {str(error) or 'an allocation was refused'}"
    if device == "gpu" and any(text in said for text in NO_GPU):
        return "declined", f"the framework sees no GPU (see overhead doctor): {said}"
    if device == "gpu" and any(text in said for text in DEVICE_LOST):
        return "failed", f"the GPU was lost or its context broken: {said}"
    return "failed", said


def missing(error: ImportError) -> str:
    """Why a framework could not be imported, in words."""
    if isinstance(error, ModuleNotFoundError) and error.name and "." not in error.name:
        return f"{error.name} is not installed"
    return f"cannot be imported: {error}"
