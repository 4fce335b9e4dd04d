"""ZuCo: MATLAB files of both versions, and the pickles of Wang & Ji."""
