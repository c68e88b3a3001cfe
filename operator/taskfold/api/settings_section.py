"""What every part of the operator's settings is made of."""

import ipaddress
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Name = Annotated[str, Field(min_length=1, max_length=317)]
"""Of an extended resource or a label."""


def _range(text: str) -> str:
    return str(ipaddress.ip_network(text))


Range = Annotated[str, AfterValidator(_range)]
"""An address range, `10.0.0.0/8`; a single address is `10.1.2.3/32`."""


class Section(BaseModel):
    """A part of the settings: frozen, camelCase in the file, unknown keys refused."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,  # docs/reference/settings.md and the chart's schema
    )
