"""Which assignor a model group uses: functions of what its members offer, each in its order of preference."""

from __future__ import annotations

from collections.abc import Sequence

from instride._wire import api

__all__ = ["elect", "fits", "metadata_of"]

Offer = tuple[api.GroupProtocol, ...]


def fits(offer: Offer, offers: Sequence[Offer]) -> bool:
    """Whether it shares a protocol with all members there are. A member's own last offer is one of them, so that also
    one alone cannot change its own."""
    return not offers or bool({each.name for each in offer} & _shared(offers))


def elect(offers: Sequence[Offer]) -> str:
    """Each votes for its first of those that all have."""
    shared = _shared(offers)
    votes = [next(each.name for each in offer if each.name in shared) for offer in offers]
    return max(sorted(set(votes)), key=votes.count)


def metadata_of(offer: Offer, protocol: str) -> bytes:
    return next(each.metadata for each in offer if each.name == protocol)


def _shared(offers: Sequence[Offer]) -> set[str]:
    names = [{each.name for each in offer} for offer in offers]
    return names[0].intersection(*names)
