"""For bench/vllm_connector.py: vLLM's own CPU tier under OffloadingConnector, with vLLM's manager. On vLLM's CPU backend its spec refuses
to copy, so quire copies.
"""

from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

from quire.vllm.offload import QuireOffloadingSpec


class OwnBooksSpec(QuireOffloadingSpec):
    def get_manager(self):
        return CPUOffloadingSpec.get_manager(self)
