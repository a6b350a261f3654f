"""Pure checks of the release gate: what a build folder's files say of each other."""
