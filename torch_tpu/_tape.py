"""A graph together with the calls that built it, so that another process can build it again without tracing."""

from __future__ import annotations

from typing import Any

Step = tuple[str, tuple[Any, ...]]


class Tape:
    """Stands for a `torch_tpu._C.Graph` while a graph is recorded."""

    def __init__(self) -> None:
        from torch_tpu import _C

        self.graph = _C.Graph()
        self.steps: list[Step] = []

    def _do(self, name: str, *args: Any) -> Any:
        self.steps.append((name, args))
        return getattr(self.graph, name)(*args)

    def input(self, dtype: str, dims: Any) -> int:
        return self._do("input", dtype, dims)

    def read(self, base: int, view: Any) -> int:
        return self._do("read", base, view)

    def write(self, base: int | None, view: Any, source: int) -> int:
        return self._do("write", base, view, source)

    def call(self, name: str, arguments: Any, types: Any) -> Any:
        return self._do("call", name, arguments, types)

    def call_function(self, name: str, text: str, values: Any, types: Any) -> Any:
        return self._do("call_function", name, text, values, types)

    def output(self, value: int | None) -> None:
        self._do("output", value)

    def call_graph(self, graph: Tape, values: Any) -> Any:
        self.steps.append(("call_graph", (graph.steps, list(values))))
        return self.graph.call_graph(graph.graph, list(values))

    def call_case(self, index: int, graphs: list[Tape], values: Any) -> Any:
        self.steps.append(("call_case", (index, [g.steps for g in graphs], list(values))))
        return self.graph.call_case(index, [g.graph for g in graphs], list(values))

    def call_while(self, graphs: list[Tape], values: Any) -> Any:
        self.steps.append(("call_while", ([g.steps for g in graphs], list(values))))
        return self.graph.call_while([g.graph for g in graphs], list(values))


def replay(steps: list[Step]) -> Any:
    """The `_C.Graph` that these calls build."""
    from torch_tpu import _C

    graph = _C.Graph()
    for name, args in steps:
        if name == "call_graph":
            args = (replay(args[0]), args[1])
        elif name == "call_case":
            args = (args[0], [replay(s) for s in args[1]], args[2])
        elif name == "call_while":
            args = ([replay(s) for s in args[0]], args[1])
        getattr(graph, name)(*args)
    return graph
