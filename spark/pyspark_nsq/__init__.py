"""Where PySpark finds the data source `nsq` by itself: it looks for `DefaultSource` in packages named pyspark_*.

So `spark.read.format("nsq")` and `CREATE TABLE … USING nsq` need no registration where this package is installed.
PySpark 4.0 refuses to register a source that it has found by itself; there it finds nothing, and register works.
"""

from __future__ import annotations

import pyspark

from nsq_spark.source.data_source import NsqDataSource

if not pyspark.__version__.startswith("4.0."):

    class DefaultSource(NsqDataSource):
        """The same, under the name that PySpark looks for."""
