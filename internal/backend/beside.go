package backend

// Kept is an artifact that can have what an older one is made of beside it.
type Kept interface {
	Artifact
	// Beside is the artifact while the sets, counters, limits and tables of sources of
	// an older one stay in the kernel, so that going back fills nothing: Steps leaves
	// them where they are, and Compare takes none for a difference.
	Beside(older Artifact) Artifact
}
