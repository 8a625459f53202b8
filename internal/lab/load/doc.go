// Package load asks a web server again and again and records what came back over
// time: requests per second, errors by kind, connect times, latencies. "sluice-lab load"
// and the stories call it.
//
// The words:
//
//   - A closed loop has each connection send its next request when the last one is
//     answered: a slow server is asked less. An open loop (Options.Rate) keeps a
//     schedule, whatever the server does.
//   - The intended start of a request is when the schedule, or the connection that
//     was free, wanted it to start.
//   - Coordinated omission is what a closed loop hides: while the server stalls, the
//     requests that would have met the stall are not sent. In an open loop latency
//     counts from the intended start, so nothing is hidden. In a closed loop the
//     histogram is corrected afterwards: a latency of several expected intervals
//     stands for the requests too that would have started meanwhile. Result has
//     both, corrected and as measured.
//   - A request is answered when a whole response with a status below 400 came. All
//     else is an error of a [Kind]. Latencies are of answered requests, and of
//     time-outs with the time waited: without them the worst would be left out.
//
// One goroutine per connection keeps the schedule together with one pacer that all
// share; each result is recorded in the interval in which the request ended.
// The loops are our own: vegeta, the kept library nearest to it, counts latency from when
// a request was sent instead of its intended start, and knows no connect times.
package load
