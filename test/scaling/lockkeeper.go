package scaling

// MoveIn installs lockkeeper in the lab, and starts a worker and a watcher, which end with the test. what are flags of
// hack/install-in-lab.sh.
func (w *World) MoveIn(what ...string) {
	w.Helper()
	w.Cleanup(w.World.MoveIn(what...).Stop)
}
