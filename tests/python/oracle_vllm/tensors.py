"""Stands for torch: a tensor is an array of numpy, with the calls that quire.vllm makes on KV caches."""

import types
from types import SimpleNamespace

import numpy as np


class Dtype:
    def __init__(self, name: str, itemsize: int):
        self.name, self.itemsize = name, itemsize

    def __str__(self) -> str:
        return f"torch.{self.name}"


class Tensor:
    """`dtype`: of the elements, which the array may hold in another type of the same size."""

    def __init__(self, array: np.ndarray, dtype=None, device: str = "cpu"):
        self.array, self.device = array, SimpleNamespace(type=device)
        self.dtype = dtype or array.dtype.type

    @property
    def shape(self) -> tuple:
        return self.array.shape

    def view(self, *how):
        if len(how) == 1 and isinstance(how[0], type):
            return Tensor(self.array.view(how[0]), device=self.device.type)
        return Tensor(self.array.reshape(how), self.dtype, self.device.type)

    def numpy(self) -> np.ndarray:
        if self.device.type != "cpu":
            raise TypeError("a tensor of a device is not in host memory")
        return self.array


class Stream:
    """Counts for which streams it waits."""

    def __init__(self):
        self.waited = []

    def wait_stream(self, other) -> None:
        self.waited.append(other)


def _cuda() -> types.ModuleType:
    cuda = types.ModuleType("torch.cuda")
    current, registered = Stream(), []
    cuda.Stream, cuda.current_stream, cuda.registered = Stream, lambda: current, registered
    cuda.get_device_name = lambda: "device"
    cuda.cudart = lambda: SimpleNamespace(cudaHostRegister=lambda address, size, flags: registered.append((address, size, flags)) or 0)
    cuda.check_error = lambda code: None
    return cuda


def members() -> dict:
    cpu = types.ModuleType("torch.cpu")
    cpu._is_amx_tile_supported = lambda: False
    return {
        "__version__": "2.0",
        "tensor": lambda data, dtype=np.float32: np.array(data, dtype=dtype),
        "bool": np.bool_,
        "int8": np.int8,
        "float16": Dtype("float16", 2),
        "Tensor": Tensor,
        "from_numpy": Tensor,
        "cpu": cpu,
        "cuda": _cuda(),
        "backends": SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "AVX2")),
    }
