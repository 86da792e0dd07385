"""vLLM's KV offloading with quire's ledgers, on GPUs and on CPUs, with a folder below host memory. See docs/vllm.md.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
      {"spec_name": "QuireOffloadingSpec", "spec_module_path": "quire.vllm.offload", "cpu_bytes_to_use": 8000000000}}'

With the options `"disk_path": FOLDER, "disk_bytes_to_use": N`, blocks survive the process. vLLM's interface has changed since 0.19.0, so
the installed version selects the file.
"""

from importlib.util import find_spec

if find_spec("vllm.v1.kv_offload.abstract"):
    from quire.vllm._offload_v0_19 import CPUOffloadingManager, QuireOffloadingConnector, QuireOffloadingSpec, TieredOffloadingManager

    __all__ = ["CPUOffloadingManager", "QuireOffloadingConnector", "QuireOffloadingSpec", "TieredOffloadingManager"]
else:
    from quire.vllm._offload_v0_32 import QuireOffloadingSpec, TieredOffloadingManager

    __all__ = ["QuireOffloadingSpec", "TieredOffloadingManager"]
