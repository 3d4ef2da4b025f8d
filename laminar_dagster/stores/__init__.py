"""Object stores: a local disk and S3, behind the ``ObjectStore`` port."""
