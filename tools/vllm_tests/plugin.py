"""The pytest plug-in of one run of vLLM's tests: which scheduler they get, and how each test ended."""

SYNC, ASYNC = "vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler"


def put_quire_in() -> None:
    """Whoever imports one of vLLM's two scheduler classes from now on gets quire's. It is one class, which reads the mode from the
    configuration; the CPU platform turns asynchronous scheduling off there, so the name AsyncScheduler turns it on again.
    """
    import importlib

    from quire.vllm import Scheduler

    class AsyncScheduler(Scheduler):
        def __init__(self, vllm_config, **arguments):
            vllm_config.scheduler_config.async_scheduling = True
            super().__init__(vllm_config=vllm_config, **arguments)

    importlib.import_module(ASYNC).AsyncScheduler = AsyncScheduler
    importlib.import_module(SYNC).Scheduler = Scheduler


class Outcomes:
    """After the run: id -> "passed", "skipped", or what the failure said."""

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
