"""What dbt does again for every model, done once or not at all (docs/bench.md).

Add here what a measurement shows to be dbt's repetition, with nothing left out that a user of Wattledger could see.
Keep out how dbt runs (`dbt_run`). The classes are no public API of dbt: requirements.lock names the version.
"""

from __future__ import annotations

import re
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from dbt.contracts.graph.nodes import Macro
    from dbt_common.events.base_types import BaseEvent, EventLevel


@cache
def take_shortcuts() -> None:
    """Take them all, from now on in this process."""
    _make_messages_only_for_loggers()
    _wrap_macros_in_one_pass()
    _find_the_first_with()


def _make_messages_only_for_loggers() -> None:
    """dbt makes an object of each of some 4,000 events, and of that a message, before it looks for a logger."""
    from dbt_common.events.base_types import DebugLevel  # noqa: PLC0415 (dbt takes a second)
    from dbt_common.events.event_manager import EventManager  # noqa: PLC0415
    from dbt_common.events.event_manager_client import ctx_set_event_manager  # noqa: PLC0415

    class LoggedEvents(EventManager):
        def fire_event(
            self,
            e: BaseEvent,
            level: EventLevel | None = None,
            node: Any = None,
            force_warn_or_error_handling: bool = False,
        ) -> None:
            if self.loggers or force_warn_or_error_handling:
                super().fire_event(e, level, node, force_warn_or_error_handling)

    manager, make = LoggedEvents(), DebugLevel.__init__

    @wraps(make)
    def make_if_logged(self: DebugLevel, *args: Any, **details: Any) -> None:
        if manager.loggers:
            make(self, *args, **details)

    DebugLevel.__init__ = make_if_logged  # type: ignore[method-assign, assignment]
    ctx_set_event_manager(manager)


def _wrap_macros_in_one_pass() -> None:
    """A model is rendered with all 700 macros, which dbt sorts by package and looks up in five places, one by one."""
    from dbt.clients.jinja import MacroGenerator  # noqa: PLC0415
    from dbt.context.macros import MacroNamespace, MacroNamespaceBuilder  # noqa: PLC0415

    class FlatNamespace(MacroNamespace):
        def __init__(self, *namespaces: Any, **named_namespaces: Any) -> None:
            super().__init__(*namespaces, **named_namespaces)
            self.found: dict[str, Any] = {}
            for namespace in reversed(list(self._search_order())):
                self.found.update(namespace)

        def __getitem__(self, key: str) -> Any:
            return self.found[key]

        def __iter__(self) -> Iterator[str]:
            return iter(self.found)

        def __len__(self) -> int:
            return len(self.found)

    build = MacroNamespaceBuilder.build_namespace

    @wraps(build)
    def build_namespace(
        self: MacroNamespaceBuilder, macros_by_package: Mapping[str, Mapping[str, Macro]], ctx: dict[str, Any]
    ) -> MacroNamespace:
        new = MacroGenerator.__new__

        def wrapped(macro: Macro) -> MacroGenerator:
            generator = new(MacroGenerator)
            generator.__dict__ = {"context": ctx, "macro": macro, "node": self.node, "stack": self.thread_ctx}
            return generator

        packages = {
            package: {name: wrapped(macro) for name, macro in macros.items()}
            for package, macros in macros_by_package.items()
        }
        internal: dict[str, MacroGenerator] = {}
        for package in reversed(self.internal_package_names_order):
            internal.update(packages.get(package, {}))
        others = {name: found for name, found in packages.items() if name not in self.internal_package_names}
        return FlatNamespace(
            global_namespace=others.get(self.root_package, {}),
            local_namespace=others.get(self.search_package, {}),
            global_project_namespace=internal,
            packages=others,
        )

    MacroNamespaceBuilder.build_namespace = build_namespace  # type: ignore[method-assign]


# Comments and blanks, then WITH: so do models begin that have CTEs.
_BEGINS_WITH = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*with(?:\s+recursive)?\b", re.IGNORECASE | re.DOTALL)


def _find_the_first_with() -> None:
    """dbt parses the whole SQL of a model that reads an ephemeral one, to put its CTE behind the first WITH."""
    from dbt import compilation  # noqa: PLC0415

    inject = compilation.inject_ctes_into_sql

    @wraps(inject)
    def inject_after_the_first_with(sql: str, ctes: list[Any]) -> str:
        begins = _BEGINS_WITH.match(sql)
        if begins is None or not ctes:
            return inject(sql, ctes)
        return f"{begins[0]} {', '.join(cte.sql for cte in ctes)}, {sql[begins.end() :]}"

    compilation.inject_ctes_into_sql = inject_after_the_first_with
