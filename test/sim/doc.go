// Package sim is a storage cluster and the Kubernetes that runs it, in memory, for tests. It satisfies what activities
// and the Ceph adapter need from outside, so that all of lockkeeper's own code is the real one: the monitors answer in
// JSON, the manager lags behind, the disruption controller counts pods, and a person does what persons do.
//
// It tells the time by package time. Run it in a bubble of testing/synctest, where hours cost milliseconds.
//
// What it knows that nobody else does is the truth: which copies of which placement group are whole. So it can tell of
// every eviction that was granted whether it should have been; see Violations.
package sim
