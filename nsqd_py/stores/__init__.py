"""Where archives are: object stores, and tables that directories of archives belong to.

object_stores  opens S3, Google Cloud Storage, Azure and HDFS, with settings of Hadoop or of the environment
tables         the files of Delta and Iceberg tables that have the rows of today

nsq-to-file writes to these, nsq-cat and Spark read them. Their packages are extras, so they are imported when they are needed.
"""
