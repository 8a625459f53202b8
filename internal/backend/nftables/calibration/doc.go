// Package calibration keeps what one host measured of what the cost model of nftables
// is made of. sluice-lab measures and stores it (lab/calibrate); whatever compiles a
// policy reads it.
//
// The words:
//
//   - A [Calibration] is a model as one host measured it, with that host and the
//     spread of each constant. It lies in the state directory ([File]).
//   - It fits a machine ([Calibration.Unfit]) that has the same kernel, processors
//     and mitigations: on another one it is left alone, and said to be.
package calibration
