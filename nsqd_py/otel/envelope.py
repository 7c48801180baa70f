"""The envelope around a body, under its old name: it is in `nsqd_py.protocol.envelope`."""

from nsqd_py.protocol.envelope import MAGIC as MAGIC
from nsqd_py.protocol.envelope import unwrap as unwrap
from nsqd_py.protocol.envelope import wrap as wrap
