"""Address and limits of the viewer."""

import ipaddress

from pydantic import Field

from histolumen.engine.slides.predict import SlideSettings
from histolumen.settings import Settings
from histolumen.view.limits import Limits


class ViewSettings(Settings):
    """Where the viewer listens, who may use it, and how much it accepts."""

    host: str = "127.0.0.1"
    """Address to listen on; any other than this machine's own needs a token."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0: any free one."""
    token: str = Field(default="", pattern="^([A-Za-z0-9._~-]{8,})?$")
    """Secret that every request must carry: 8 or more characters that need no escaping in an address; empty: none."""
    upload_bytes: int = Field(default=50_000_000, ge=1)
    """Largest request body."""
    upload_pixels: int = Field(default=50_000_000, ge=1)
    """Largest image that may be uploaded."""
    uploads: int = Field(default=16, ge=1)
    """Number of dropped images that are kept; the oldest is deleted first."""
    queue: int = Field(default=16, ge=1)
    """Predictions that may wait for the network; further ones are refused with 503."""
    cache_bytes: int = Field(default=256_000_000, ge=0)
    """Memory for decoded images, and the same again for masks."""
    limits: Limits = Limits()
    """What clients may ask of the server."""
    verbose: bool = False
    """Log requests and full errors, which contain names of files."""
    slides: SlideSettings = SlideSettings()
    """How slides are predicted."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
