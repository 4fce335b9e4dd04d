"""What a run found, in the formats that other tools load."""
