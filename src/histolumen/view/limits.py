"""How much one client, and all clients together, may ask of the server."""

import ipaddress

from pydantic import Field

from histolumen.settings import Settings


class Limits(Settings):
    """Connections, times and rates. A client is an address; of IPv6 addresses a network of 64 bits."""

    connections: int = Field(default=256, ge=1)
    """Open connections; further ones are refused with 503."""
    connections_of_client: int = Field(default=64, ge=1)
    """Open connections of one client."""
    head_seconds: float = Field(default=10, gt=0)
    """Time from the start of a connection, or from the last response, until the head of a request is complete."""
    body_seconds: float = Field(default=120, gt=0)
    """Time for the body of a request."""
    stall_seconds: float = Field(default=10, gt=0)
    """Interval in which a body that is sent or a response that is read must move on."""
    stall_bytes: int = Field(default=10_000, ge=1)
    """Bytes that must have moved in that time."""
    predict_seconds: float = Field(default=300, gt=0)
    """Time that `POST /api/predict` waits for the network."""
    requests_per_second: float = Field(default=400, gt=0)
    """Mean rate of requests; further ones are refused with 503."""
    requests_of_client_per_second: float = Field(default=100, gt=0)
    """Mean rate of requests of one client; further ones are refused with 429."""
    burst_seconds: float = Field(default=5, gt=0)
    """Requests of this time may come at once."""
    wrong_tokens: int = Field(default=10, ge=1)
    """Wrong tokens that a client may try at once; then one more every ten seconds."""


def client_of(address: str) -> str:
    """The client behind an address: one machine has all addresses of an IPv6 network of 64 bits."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return str(parsed)
    return str(ipaddress.ip_network((parsed, 64), strict=False))
