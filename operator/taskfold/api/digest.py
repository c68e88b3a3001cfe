"""The digest of a spec: what `status.admitted.specDigest` holds."""

from __future__ import annotations

import hashlib
import json

from .common import Spec


def of_spec(spec: Spec) -> str:
    """`sha256:<hex>` over the immutable part of a spec, as canonical JSON.

    Fields that equal their default are left out: a default that a later version of the CRD adds does not
    change the digest of a run that is on its way. So does `1` for `1.0`: both parse to the same value.
    """
    data = spec.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True, exclude=set(spec.MUTABLE)
    )
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
