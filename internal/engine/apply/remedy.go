package apply

// Remedy names what fixes an error that has no type of its own. How that is done, by
// which command or call, is known to the caller.
type Remedy string

// Remedies.
const (
	BeRoot                   Remedy = "be root"
	ApplyOne                 Remedy = "apply a policy"
	ApplyAgain               Remedy = "apply it again"
	ApplyAgainOrGoTo         Remedy = "apply it again, or go back to that generation"
	ApplyAgainOrGoBack       Remedy = "apply it again, or go back to a generation"
	ApplyPolicing            Remedy = "apply a policy that polices something"
	ApplyAgainPolicing       Remedy = "apply it again with a section that polices something"
	ApplyUnconfirmed         Remedy = "apply without a confirmation"
	ApplyUnconfirmedOrRemove Remedy = "apply without a confirmation, or remove what runs"
	NamePolicy               Remedy = "apply a policy, or name the one to compare with"
	NamePolicyOrReplace      Remedy = "name the policy to compare with, apply one, or remove what runs"
	SeeRunning               Remedy = "see what runs"
	SeeKernel                Remedy = "see what the kernel holds, restore, or remove"
	SeeHistory               Remedy = "see which generations are kept"
	SeeOthers                Remedy = "see which other generations there are"
	SeeHistoryOrRemove       Remedy = "see which generations there are, or remove what runs"
	GoToOrRemove             Remedy = "name the generation to go to, or remove what runs"
	GoTo                     Remedy = "go back to that generation"
	ForceBack                Remedy = "go back whoever is locked out"
	Remove                   Remedy = "remove what runs"
	RestoreConfirmed         Remedy = "restore the confirmed policy"
	RefreshAgain             Remedy = "refresh again"
	DoAgain                  Remedy = "do it again"
	GoBackUnconfirmed        Remedy = "go back without a trial"
	ConfirmFirst             Remedy = "confirm what waits"
	FreeDisk                 Remedy = "make room on the disk"
	SmallerSets              Remedy = "have smaller sets"
	LeaveSysctl              Remedy = "leave a setting of the machine alone"
	KeepForced               Remedy = "apply without a confirmation what locks somebody out"
	SyncOnceUp               Remedy = "bring in an interface once it is up"
	ForceBan                 Remedy = "ban by force"
	ForceWideBan             Remedy = "ban a large part of the internet by force"
	MeasureAnew              Remedy = "measure the costs anew"
	MeasureAnewOrForget      Remedy = "measure the costs anew, or forget what was measured"
	ReplaceMeasured          Remedy = "remove the file of what was measured, or measure anew"
)

// RemedyError is an error and what fixes it.
type RemedyError struct {
	Err        error
	Remedy     Remedy
	Generation int    // that the remedy is about, or 0
	Name       string // of the setting that it is about, or ""
}

func (e *RemedyError) Error() string { return e.Err.Error() }
func (e *RemedyError) Unwrap() error { return e.Err }

// remedied is an error with what fixes it.
func remedied(r Remedy, err error) error { return &RemedyError{Err: err, Remedy: r} }
