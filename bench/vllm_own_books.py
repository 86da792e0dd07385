"""vLLM's CPU tier for bench/vllm_connector.py: OffloadingConnector with vLLM's manager. vLLM's spec refuses to copy on its CPU backend, so
quire copies.
"""

from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from quire.vllm.offload import QuireOffloadingSpec


class OwnBooksSpec(QuireOffloadingSpec):
    def get_manager(self):
        return CPUOffloadingSpec.get_manager(self)
