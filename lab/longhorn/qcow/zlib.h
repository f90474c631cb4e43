// Includes nothing: the stand-in for libqcow needs no zlib.
