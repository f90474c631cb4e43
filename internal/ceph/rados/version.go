package rados

/*
#cgo LDFLAGS: -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

// librados_release asks the library that librados itself is linked with, since librados' own functions tell its
// interface's version only, 3.0.0 for years. The name is that of the C++ function ceph_version_to_str(), which every
// release has.
static const char *librados_release(void) {
	void *common = dlopen("libceph-common.so.2", RTLD_LAZY | RTLD_NOLOAD);
	if (common == NULL) {
		return NULL;
	}
	const char *(*version)(void) = (const char *(*)(void))dlsym(common, "_Z19ceph_version_to_strv");
	const char *answer = version == NULL ? NULL : version();
	dlclose(common);
	return answer;
}
*/
import "C"

// Version is the Ceph release of the librados that this process runs with, such as 16.2.15; "" when that cannot be
// told.
func Version() string {
	answer := C.librados_release()
	if answer == nil {
		return ""
	}
	return C.GoString(answer)
}
