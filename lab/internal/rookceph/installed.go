package rookceph

// CheckInstalled says which packages to install if Ceph's programs are missing.
func CheckInstalled() error { return requirePrograms() }
