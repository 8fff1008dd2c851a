package lint

// dataRules are about changes that take data with them.
func dataRules() []Rule {
	return nil
}
