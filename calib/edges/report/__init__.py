"""Reports for people: one HTML file that needs no network, with inline SVG; and contact sheets."""
