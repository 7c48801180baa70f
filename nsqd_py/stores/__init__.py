"""The stores of archives, and the knowledge of their files that nsq-to-file, nsq-cat and Spark share.

directories    files by their names: those with messages, and those that programs keep next to them
files          open files, which are read at any offset
formats        the compression and the format of a file, by how it begins and by its name                pure
compression    gzip members and zstd frames, each complete in itself                                     pure
object_stores  opens S3, Google Cloud Storage, Azure and HDFS, with settings of Hadoop or of the environment
tables         the files of Delta and Iceberg tables that have the rows of today
commits        adds Parquet files to such tables

The packages of object stores and tables are extras, so they are imported when they are needed.
"""
