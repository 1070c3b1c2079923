"""Which pipeline a run has: one engine a target with zig, or one program with cosmocc."""

from __future__ import annotations

from opencoti_build.build.context import BuildContext
from opencoti_build.build.pipeline import Pipeline
from opencoti_build.build.reference import Reference
from opencoti_build.recipe import Toolchain


def prepare(context: BuildContext) -> Pipeline | Reference:
    """The prepared pipeline of ``context``. Raises SourceError and SeriesError."""
    if context.toolchain is Toolchain.COSMOCC:
        return Reference.prepare(context)
    return Pipeline.prepare(context)
