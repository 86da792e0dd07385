"""A pytest plug-in for one run of vLLM's tests. It replaces the scheduler classes, and records the outcome of each test."""

SYNC, ASYNC = "vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler"


def put_quire_in(with_offloading: bool) -> None:
    """Makes later imports of vLLM's two scheduler classes return quire's class. Quire has only one class, which reads the mode from the
    configuration. vLLM's CPU platform turns asynchronous scheduling off in the configuration, so the replacement of AsyncScheduler turns it
    on again.
    """
    import importlib

    from quire.vllm import Scheduler as Ours

    class Scheduler(Ours):
        """Has the internal fields of vLLM's class that tests of connectors check at their end."""

        _inflight_prefills = property(lambda self: {request for request in self.requests.values() if request.is_prefill_chunk})
        _kv_fetch_stages = property(lambda self: self.loads._stages)

    class AsyncScheduler(Scheduler):
        def __init__(self, vllm_config, **arguments):
            vllm_config.scheduler_config.async_scheduling = True
            super().__init__(vllm_config=vllm_config, **arguments)

    importlib.import_module(ASYNC).AsyncScheduler = AsyncScheduler
    importlib.import_module(SYNC).Scheduler = Scheduler
    if with_offloading:
        put_offloading_in()


def put_offloading_in() -> None:
    """Replaces vLLM's CPUOffloadingManager and the reuse filter by quire's manager. The tests read internal fields of both classes, so the
    replacements have the same fields."""
    import importlib

    from vllm.v1.kv_offload.cpu.policies.arc import ARCCachePolicy

    from quire.vllm.offload import CPUOffloadingManager

    class ArcView(ARCCachePolicy):
        def __init__(self, manager):
            self._manager, self.cache_capacity = manager, manager.native.num_slots

        def _list(self, index):
            return self._manager.hashes(self._manager.native.lists[index])

        t1, t2, b1, b2 = (property(lambda self, index=index: self._list(index)) for index in range(4))
        target_t1_size = property(lambda self: self._manager.native.target_t1_size)

    class Manager(CPUOffloadingManager):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.made_with, self._policy = (arguments, options), ArcView(self)

    class Filter(Manager):
        def __init__(self, backing, store_threshold=2, max_tracker_size=64_000):
            if store_threshold < 2 or max_tracker_size < 1:
                raise ValueError("store_threshold and max_tracker_size")
            arguments, options = backing.made_with
            super().__init__(*arguments, store_threshold=store_threshold, max_tracker_size=max_tracker_size, **options)

        @property
        def counts(self):
            return dict(zip(self.hashes([name for name, _ in self.native.counted]), [count for _, count in self.native.counted]))

    importlib.import_module("vllm.v1.kv_offload.cpu.manager").CPUOffloadingManager = Manager
    importlib.import_module("vllm.v1.kv_offload.reuse_manager").FilterReusedOffloadingManager = Filter


class Outcomes:
    """Collects {test id: "passed", "skipped", or the last line of the failure} in `by_id`."""

    def __init__(self):
        self.by_id = {}

    def pytest_runtest_logreport(self, report):
        name = report.nodeid.removeprefix("tests/v1/")
        if report.failed:
            self.by_id[name] = str(report.longrepr).strip().splitlines()[-1]
        elif report.skipped:
            self.by_id[name] = "skipped"
        elif report.when == "call":
            self.by_id.setdefault(name, "passed")
