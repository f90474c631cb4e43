// Package pghealth tells from a series of looks at a Ceph cluster whether its data is whole, and whether that is known
// or merely not denied yet. It is pure: no clock, no sleeping, no I/O.
//
// # Why a single look proves nothing
//
// Ceph's summary of the placement groups lags behind the OSD map. Each OSD reports the groups that it leads to the
// active manager every mgr_stats_period (5 s), and the manager hands a summary to the monitors every mgr_tick_period (2
// s). So for seconds after an OSD stopped or was marked in or out the summary still says that all is active+clean, and
// ok-to-stop says yes; with a dead manager both do so for ever, and "available" turns false only after 30 s.
//
// # The rule
//
// The summary counts once every OSD that is up has been seen to have reported anew after a digest that was itself new
// since the placement of data last changed (Round), in looks that no further change interrupted. What proves a report
// is its number, which the manager hands to the monitors in one piece with the summary (ceph.Client.LastReports).
//
// Why after a digest: when the change is seen, reports made before it may still be on their way. The manager tells of
// what it received in ticks, so the first new number of an OSD may be that of such a report, or of the last of several.
// What is new in the digest of a later tick was made after the first tick, and that was after the change was seen. It
// is not enough to count two reports: where ticks are no more frequent than reports, one tick may tell of two old ones.
//
// What remains assumed is that by then the OSD has taken in the map. OSDs pass maps on within milliseconds; with Ceph's
// default periods they have mgr_stats_period − mgr_tick_period, 3 s, at the least.
//
// An OSD's number is that of its present life: (epoch at which it went up, count). An OSD whose life began with
// the very change has to report once only, as it knew of the change when it began to count.
//
// # What else it takes
//
// A reading that counts as a whole (ceph.Reader: a quorum that is a majority, an OSD map that answered), a manager that
// is available and has been the same since the proof began, and as many groups in the summary as the pools have.
//
// Once proved, the summary stays believable until placement changes again: whatever it says later was reported later.
// So a cluster at rest costs no proof, only looks.
package pghealth
