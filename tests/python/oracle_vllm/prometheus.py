"""Stands for prometheus_client where it is not installed: metrics with labels, and their text."""


class CollectorRegistry:
    def __init__(self):
        self.metrics = {}


class _Metric:
    suffix = ""

    def __init__(self, name, documentation, labelnames=(), registry=None, **_):
        assert documentation and name not in registry.metrics
        registry.metrics[name] = self
        self.name, self.labelnames, self.values = name, list(labelnames), {}

    def labels(self, *values):
        assert len(values) == len(self.labelnames)
        return _Labelled(self.values, tuple(values))


class _Labelled:
    def __init__(self, values, labels):
        self._values, self._labels = values, labels

    def inc(self, amount=1):
        self._values[self._labels] = self._values.get(self._labels, 0.0) + amount

    observe = inc


class Counter(_Metric):
    suffix = "_total"


class Gauge(_Metric):
    pass


class Histogram(_Metric):
    suffix = "_sum"


def generate_latest(registry) -> bytes:
    lines = []
    for metric in registry.metrics.values():
        for values, amount in metric.values.items():
            labels = ",".join(f'{name}="{value}"' for name, value in zip(metric.labelnames, values))
            lines.append(f"{metric.name}{metric.suffix}{{{labels}}} {float(amount)}\n")
    return "".join(lines).encode()
