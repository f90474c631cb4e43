package kubelet

import "net/http"

func (k *Kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	http.Error(w, "not yet", http.StatusNotImplemented)
}
