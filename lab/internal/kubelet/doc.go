// Package kubelet is the kubelet of every node of a lab, in one process: it registers nodes, keeps their leases, runs
// the pods bound to them as processes (package runtime), and reports what becomes of them.
//
// It does what the real one does as far as anybody can see through the API, only faster where the real one waits for
// nothing: a container that is not ready yet is asked ten times a second, and a crash loop backs off to seconds, not
// minutes.
package kubelet
