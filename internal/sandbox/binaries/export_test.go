package binaries

// What the tests of package binaries_test use.
var (
	Pack            = pack
	ReplaceArchives = replaceArchives
)

// ArchiveName returns the name of the control plane's archive for this platform.
func ArchiveName() (string, error) {
	all, err := modules()
	if err != nil {
		return "", err
	}
	return all[0].archiveName(), nil
}
