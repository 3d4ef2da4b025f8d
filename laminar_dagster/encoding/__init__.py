"""What readers and writers of an encoding share: the languages of schemas."""
