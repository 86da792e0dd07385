"""Copies between a KV cache in host memory and the memory of the tier, for jobs of quire.vllm.Connector.

Loads and stores have separate threads, so that a load does not wait for a store.
"""

from dataclasses import dataclass

from quire._core import BlockCopier
from quire.vllm._connector_meta import Job

_FIRST_PART = 1 << 40  # numbers of parts are greater than all numbers of jobs


@dataclass
class EndedJob:
    """A job that has ended."""

    job: int
    is_successful: bool
    size: int | None
    seconds: float | None


class HostCopies:
    """Executes copies for jobs. `factor`: blocks of the KV cache per slot."""

    def __init__(self, to_host: BlockCopier, to_device: BlockCopier, factor: int):
        self._to_host, self._to_device, self._factor = to_host, to_device, factor
        self._last, self._parts = _FIRST_PART, {}  # part -> job

    def store(self, job: Job) -> bool:
        slots, numbers = (job.slots, job.numbers) if job.numbers else ([], [])
        self._to_host.submit(job.id, True, job.blocks, self._pages(job), slots, numbers)
        return True

    def load(self, job: Job) -> bool:
        self._to_device.submit(job.id, False, job.blocks, self._pages(job))
        return True

    def load_parts(self, job: Job, num_tensors: int) -> list[int]:
        """Begins one copy per tensor, in the order of the tensors, and returns their numbers for wait_loads(). The job ends when all copies
        have ended."""
        parts = []
        for tensor in range(num_tensors):
            self._last += 1
            self._parts[self._last] = job.id
            self._to_device.submit(self._last, False, job.blocks, self._pages(job), tensors=[tensor])
            parts.append(self._last)
        return parts

    def _pages(self, job: Job) -> list[int]:
        """Returns the job's pages in host memory. If the KV cache already has the first blocks of the first slot, the load begins after
        them."""
        pages = [slot * self._factor + part for slot in job.slots for part in range(self._factor)]
        return pages[len(pages) - len(job.blocks) :]

    def wait_stores(self, jobs) -> None:
        self._to_host.wait(list(jobs))

    def wait_loads(self, jobs) -> None:
        self._to_device.wait(list(jobs))

    def take_stores(self) -> list[EndedJob]:
        return [EndedJob(job, True, size, seconds) for job, size, seconds in self._to_host.take_over(True)]

    def take_loads(self) -> list[EndedJob]:
        whole = {}  # parts of a job that have ended are reported together
        for number, size, seconds in self._to_device.take_over(False):
            job = self._parts.pop(number, number)
            before = whole.get(job, EndedJob(job, True, 0, 0.0))
            whole[job] = EndedJob(job, True, before.size + size, before.seconds + seconds)
        return list(whole.values())
