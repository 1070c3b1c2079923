"""BUILD_INFO.md, rendered from the manifest alone."""

from __future__ import annotations

from collections.abc import Mapping


def build_info(manifest: Mapping[str, object]) -> bytes:
    """The text of BUILD_INFO.md for one release."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("opencoti_build.release", "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown, not HTML
    )
    text = environment.get_template("BUILD_INFO.md.j2").render(manifest=manifest)
    return text.encode()
