package command

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"sluice/internal/engine"
	"sluice/internal/engine/apply"
	"sluice/internal/engine/shadow"
	"sluice/internal/language/geo"
	"sluice/internal/language/lists"
	"sluice/internal/language/policy"
	"sluice/internal/program/optimize"
	"sluice/internal/prove/expect"
)

// Hinted is the text of an error with what to type against it: behind the text of each
// error that it is made of, where the table below has something to say of that one.
// Here is what HereArguments gives.
func Hinted(err error, here string) string {
	text := err.Error()
	var inner []error
	switch e := err.(type) { //nolint:errorlint // what this error wraps comes by the recursion
	case *apply.UnreadableError:
		text, inner = e.Text("sluice restore"), []error{e.Cause}
	case *apply.ClosedError:
		inner = []error{e.Cause, e.Err}
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	}
	for _, child := range inner {
		if child == nil || child.Error() == "" {
			continue
		}
		text = strings.Replace(text, child.Error(), Hinted(child, here), 1)
	}
	switch hint := hintOf(err, here); {
	case strings.HasPrefix(hint, "; "), strings.HasPrefix(hint, " ("): // goes on in the line
		text += hint
	case hint != "":
		text += "\n  hint: " + hint
	}
	return text
}

// reportIt is what to do where one part of Sluice contradicts another.
const reportIt = "this is a bug in Sluice, not in the policy: please report it with the policy"

// hintOf is the table from errors to hints; "" for an error that is in no need of one.
// The engine says what is wrong, and knows neither commands nor flags.
func hintOf(err error, here string) string {
	if err == shadow.ErrRuns { //nolint:errorlint // as below
		return "it ends by itself; Ctrl-C ends it where it was started"
	}
	switch e := err.(type) { //nolint:errorlint // of this error, and not of one that it wraps
	case *engine.FactsError:
		if e.Err != nil {
			return "write them there with sluice facts --json"
		}
		return "write them there with this version of sluice facts --json"
	case interface{ Hint(here string) string }:
		return e.Hint(here)
	case *engine.NoListError:
		if len(e.Known) == 0 {
			return "none of its sets has a url"
		}
		return "it has: " + strings.Join(e.Known, ", ")
	case *engine.OldGenerationError:
		return fmt.Sprintf("sluice apply%s %s", here, e.Generation.Policy)
	case *engine.OthersChangedError:
		return fmt.Sprintf("sluice apply%s %s takes all of it", here, e.Generation.Policy)
	case *policy.Error:
		return PolicyRemedy(e.Remedy)
	case *geo.UnreadableError:
		if errors.Is(e, fs.ErrPermission) {
			return PolicyRemedy(policy.ReadCountries)
		}
		return PolicyRemedy(policy.RenewCountries)
	case *geo.InUseError:
		return "--force replaces what cannot be read"
	case *geo.ShrunkError:
		return "a file that was cut off looks like this; if it is meant, for another publisher counts differently, give --force"
	case *lists.SizeError:
		return "--force takes it all the same, where the list is right"
	case *lists.StaleError:
		if refused := (*lists.SizeError)(nil); errors.As(e.Err, &refused) {
			return "sluice refresh --force takes it all the same, where the list is right"
		}
	case *optimize.UnknownPassError:
		if e.Nearest == "" {
			return "sluice compile --explain lists the passes"
		}
	case shadow.UntrackedError:
		return "give --start-tracking where that is fine; it ends with the shadow"
	case *expect.UnprovableError:
		return "a test of fewer expectations at a time may be possible; apply --no-expect asks for none"
	case *apply.BusyError:
		return "wait for it, or raise --wait"
	case *apply.ClosedRunsError:
		return fmt.Sprintf("apply a policy, or sluice rollback%s to a generation of sluice history%s", here, here)
	case *apply.ClosedError:
		if e.Err != nil {
			return "apply a policy"
		}
		return fmt.Sprintf("apply a policy, or sluice rollback%s to a generation of sluice history%s", here, here)
	case *apply.LeftError:
		return fmt.Sprintf("sluice status%s says what runs; apply the policy again to write it anew", here)
	case *apply.UnreadableError:
		return "apply the policy again, which writes it anew"
	case interface{ OfSluice() }: // and not of the policy
		return reportIt
	case *apply.DisprovedError:
		return reportIt + "; --no-verify loads it all the same"
	case *apply.LockOutError:
		what := "allow the tunnel's own packets"
		if e.BySSH() {
			what = "allow ssh from there"
		}
		return what + ", or give --force, which takes the policy back unless it is confirmed in time"
	case *apply.MemoryError:
		return "--force loads it all the same"
	case *apply.WaitingError:
		return "give --confirm to try this one too, or --no-confirm to keep this one for good"
	case *apply.UndurableError:
		return fmt.Sprintf("sluice confirm%s again when the disk takes it", here)
	case *apply.NewerError:
		return "use the sluice that wrote it, or a newer one"
	case *apply.MissingError:
		return fmt.Sprintf("sluice history%s lists those that are kept", here)
	case *apply.RemedyError:
		return remedy(e, here)
	}
	return ""
}

// PolicyRemedy is what does about an error of a policy, or a finding, what it says
// would mend it; "" for none.
func PolicyRemedy(r policy.Remedy) string {
	switch r {
	case policy.SeeCountries:
		return "\"sluice geo list\" shows what the country data have"
	case policy.RenewCountries:
		return "run sluice geo update again, or remove the file to go back to the built-in data"
	case policy.ReadCountries:
		return "run it as root, or give --state-dir with a directory that you can read"
	case policy.SeeFindingCodes:
		return "sluice lint --list shows the codes"
	case policy.NameOrGiveFacts:
		return "name the interface, or compile with the facts of the host (sluice facts --json)"
	}
	return ""
}

// remedy is what does about an error what the engine says would help.
func remedy(e *apply.RemedyError, here string) string {
	switch e.Remedy {
	case apply.BeRoot:
		return "run it with sudo"
	case apply.ApplyOne:
		return "apply one"
	case apply.ApplyAgain:
		return "apply it again"
	case apply.ApplyAgainOrGoTo:
		return fmt.Sprintf("apply it again, or sluice rollback%s %d", here, e.Generation)
	case apply.ApplyAgainOrGoBack:
		return fmt.Sprintf("apply it again, or sluice rollback%s to a generation of sluice history%s", here, here)
	case apply.ApplyPolicing:
		return "apply one that has input, forward or output"
	case apply.ApplyAgainPolicing:
		return "apply it again with such a section"
	case apply.ApplyUnconfirmed:
		return "apply with --no-confirm"
	case apply.ApplyUnconfirmedOrRemove:
		return fmt.Sprintf("apply with --no-confirm, or sluice remove%s first", here)
	case apply.NamePolicy:
		return "sluice apply loads one, sluice verify FILE names the one to compare with"
	case apply.NamePolicyOrReplace:
		return fmt.Sprintf("sluice verify FILE names the policy to compare with; apply a policy, or sluice remove%s", here)
	case apply.SeeRunning:
		return fmt.Sprintf("sluice status%s says what runs", here)
	case apply.SeeKernel:
		return fmt.Sprintf("sluice status%s says what the kernel holds; sluice restore%s loads the last confirmed policy, sluice remove%s takes everything away", here, here, here)
	case apply.SeeHistory:
		return fmt.Sprintf("sluice history%s lists those that are kept", here)
	case apply.SeeOthers:
		return fmt.Sprintf("sluice history%s lists the others", here)
	case apply.SeeHistoryOrRemove:
		return fmt.Sprintf("sluice history%s lists generations, sluice remove%s takes everything away", here, here)
	case apply.GoTo:
		return fmt.Sprintf("sluice rollback%s %d goes to the newest one before it that is kept", here, e.Generation)
	case apply.ForceBack:
		return "--force goes back without asking whether it locks you out"
	case apply.Remove:
		return fmt.Sprintf("sluice remove%s takes everything away", here)
	case apply.RestoreConfirmed:
		return fmt.Sprintf("sluice restore%s loads the confirmed policy", here)
	case apply.RefreshAgain:
		return fmt.Sprintf("sluice refresh%s again", here)
	case apply.ConfirmFirst:
		return fmt.Sprintf("sluice confirm%s keeps it", here)
	case apply.FreeDisk:
		return fmt.Sprintf("make room there, or make it writable; sluice restore%s and the way back from a trial need no room", here)
	case apply.SmallerSets:
		return "smaller sets"
	case apply.LeaveSysctl:
		return e.Name + " belongs to the whole machine and cannot be set in a network namespace"
	case apply.KeepForced:
		return "; --no-confirm keeps it"
	case apply.SyncOnceUp:
		return "; sluice sync brings it in once it is up"
	case apply.ForceBan:
		return " (--force bans it)"
	case apply.ForceWideBan:
		return " (--force bans a prefix of /7 or shorter, of IPv6 /15)"
	case apply.MeasureAnew:
		return "; sluice-lab bench calibrate measures anew"
	case apply.MeasureAnewOrForget:
		return "; \"sluice-lab bench calibrate\" measures anew, \"sluice-lab bench calibrate --remove\" goes back to the figures that come with Sluice"
	case apply.ReplaceMeasured:
		return "; remove it, or run sluice-lab bench calibrate again"
	}
	return ""
}
