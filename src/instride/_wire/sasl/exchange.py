"""What a SASL mechanism is here, and the exchange that carries it.

Laws
1. A mechanism is used for one exchange. It sees messages only: no socket, clock or random number.
2. An exchange ends in success only when the broker said so and the mechanism agrees: a broker that must prove itself
   (SCRAM) and does not is refused.
3. No error holds a secret, also where the broker's own text repeats it.
4. Whatever a mechanism raises ends this exchange, and no more: it may be a library's behind it.

When a session's exchange begins anew (KIP-368): `_net/transport.py`, law 5.
"""

from __future__ import annotations

from typing import Final, Protocol

from instride._wire.sasl.messages import (
    SaslAuthenticate,
    SaslAuthenticateResponse,
    SaslHandshake,
    SaslHandshakeResponse,
    SaslRequest,
    SaslResponse,
)
from instride.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
)
from instride.errors._quoting import quoted_from

__all__ = ["Exchange", "Mechanism"]

_REFUSALS: Final[dict[int, type[AuthenticationError]]] = {
    kind.code: kind for kind in (UnsupportedSaslMechanismError, IllegalSaslStateError, SaslAuthenticationFailedError)
}
# The longest exchange here has two rounds; a broker must not keep us talking.
_MOST_ROUNDS: Final = 4


class Mechanism(Protocol):
    """One exchange's side of ours.

    secrets: what must not be shown where a broker's text is.
    """

    @property
    def name(self) -> str: ...

    @property
    def secrets(self) -> tuple[str, ...]: ...

    def start(self) -> bytes:
        """The first message."""
        ...

    def response(self, challenge: bytes) -> bytes | None:
        """The next message, or None where the mechanism is content. Raises AuthenticationError."""
        ...


class Exchange:
    """SaslHandshake, then SaslAuthenticate until both sides are content. Not thread-safe.

    session_lifetime: seconds, once done; 0 for no bound.
    """

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism
        self._to_send: SaslRequest | None = SaslHandshake(mechanism=mechanism.name)
        self._rounds = 0
        self.done = False
        self.session_lifetime = 0.0

    def next_request(self) -> SaslRequest | None:
        """What to send now; None where a response is awaited or all is done."""
        request, self._to_send = self._to_send, None
        return request

    def response_received(self, response: SaslResponse) -> KafkaError | None:
        """Takes the broker's response. Returns the error with which the authentication has failed."""
        try:
            if isinstance(response, SaslHandshakeResponse):
                self._agreed(response)
            else:
                self._challenged(response)
        except AuthenticationError as error:
            return error
        except MemoryError:
            raise  # the connection's business: there may be some later
        except Exception as error:  # noqa: BLE001 - law 4; without its text, by law 3
            return AuthenticationError(f"{self._mechanism.name} raised {type(error).__name__}")
        return None

    def _agreed(self, response: SaslHandshakeResponse) -> None:
        name = self._mechanism.name
        if response.error == UnsupportedSaslMechanismError.code:
            known = self._shown(", ".join(response.mechanisms))
            raise UnsupportedSaslMechanismError(
                f"the broker does not take sasl_mechanism {name!r} here; it takes: {known or '-'}"
            )
        if response.error == IllegalSaslStateError.code:
            raise IllegalSaslStateError(
                "this listener does not want SASL: check the port, or set security_protocol to PLAINTEXT or SSL"
            )
        if response.error:
            raise AuthenticationError(f"the broker refused SaslHandshake ({name}) with error code {response.error}")
        self._to_send = SaslAuthenticate(auth_bytes=self._mechanism.start())

    def _challenged(self, response: SaslAuthenticateResponse) -> None:
        if response.error:
            raise _REFUSALS.get(response.error, AuthenticationError)(
                f"the broker refused {self._mechanism.name}: "
                f"{self._shown(response.error_message) or f'error code {response.error}'}"
            )
        self._rounds += 1
        message = self._mechanism.response(response.auth_bytes)
        if message is None:
            self.done = True
            self.session_lifetime = response.session_lifetime
        elif self._rounds >= _MOST_ROUNDS:
            raise AuthenticationError(f"{self._mechanism.name} does not come to an end")
        else:
            self._to_send = SaslAuthenticate(auth_bytes=message)

    def _shown(self, text: str) -> str:
        return quoted_from(text, self._mechanism.secrets)
