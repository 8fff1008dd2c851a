// Package buildinfo has the version and the commit that "make release" links into the programs of Runlevel.
//
// Other builds leave both empty: there, debug.ReadBuildInfo knows the version of the module and the commit. The package
// does not know the versions of the releases that Runlevel applies.
//
// Start with Version.
package buildinfo

// Version is the version of Runlevel, such as v0.1.0. The linker sets it:
//
//	-ldflags "-X github.com/runlevel/runlevel/internal/text/buildinfo.Version=v0.1.0"
var Version string

// Commit is the commit from which the program was built. The linker sets it, like Version.
var Commit string
