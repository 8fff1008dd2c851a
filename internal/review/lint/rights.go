package lint

// rightsRules are about rights that programs of the payload need, and do not have.
func rightsRules() []Rule {
	return nil
}
