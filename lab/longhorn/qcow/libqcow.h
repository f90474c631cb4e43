// Stands for libqcow, which Longhorn's engine needs for backing images only. Every call fails.
#ifndef LAB_LIBQCOW_H
#define LAB_LIBQCOW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LIBQCOW_OPEN_READ 1

typedef struct { int unused; } libqcow_file_t;
typedef struct { int unused; } libqcow_error_t;
typedef uint64_t size64_t;
#ifndef __off64_t_defined
typedef int64_t off64_t;
#endif

static inline int libqcow_file_initialize(libqcow_file_t **file, libqcow_error_t **error) { return -1; }
static inline int libqcow_file_free(libqcow_file_t **file, libqcow_error_t **error) { return 1; }
static inline int libqcow_file_close(libqcow_file_t *file, libqcow_error_t **error) { return 0; }
static inline void libqcow_error_free(libqcow_error_t **error) {}

static inline int libqcow_file_open(libqcow_file_t *file, const char *name, int flags, libqcow_error_t **error) {
  return -1;
}

static inline ssize_t libqcow_file_read_buffer_at_offset(
    libqcow_file_t *file, void *buffer, size_t size, off64_t offset, libqcow_error_t **error) {
  return -1;
}

static inline int libqcow_file_get_media_size(libqcow_file_t *file, size64_t *size, libqcow_error_t **error) {
  return -1;
}

static inline int libqcow_error_sprint(libqcow_error_t *error, char *text, size_t size) {
  static const char said[] = "libqcow is not built in";
  size_t i = 0;
  while (i + 1 < size && said[i] != 0) {
    text[i] = said[i];
    i++;
  }
  text[i] = 0;
  return (int)i;
}

#endif
