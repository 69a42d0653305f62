"""A run as one self-contained HTML page: `facts` reads the store, `drawing` lays out the graph, `page` renders."""
