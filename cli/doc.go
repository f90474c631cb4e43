// Package cli is what the lockkeeper command does behind its flags: it asks Kubernetes and Temporal, and puts the
// answers into words for people and into JSON for scripts. It changes nothing itself; drains are started, and signals
// sent, through Temporal.
//
// Most of it is pure: one part gathers, the other turns what was gathered into text. Whatever could not be found out is
// said as such, and never left out in silence.
package cli
